//! What somebody wrote to Redis stops nothing for long.

use refundd::bucket::End;

use super::{CAPACITY, ids, scene, take};
use crate::harness::Scratch;

async fn write(scratch: &Scratch, command: &str, part: &str, args: &[String]) {
    let key = format!("{}:{{acme}}:{part}", scratch.key_prefix());
    let mut connection = scratch.redis().await;
    redis::cmd(command).arg(key).arg(args).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_forged_mark_does_not_keep_a_refund_out_of_the_bucket() {
    let (scratch, bucket, channel) = scene("").await;
    for (id, mark) in [(1, "+inf"), (2, "9000000000000001"), (3, "1e300")] {
        write(&scratch, "ZADD", "present", &[mark.to_owned(), id.to_string()]).await;
    }
    bucket.fill(&channel.name, &ids(1..=4), End::Back, CAPACITY).await.unwrap();
    assert_eq!(take(&bucket, &channel, 9).await, [1, 2, 3, 4]);
}
