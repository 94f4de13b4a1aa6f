//! The permits of one take of a sliding kind open in groups.

use refundd::bucket::{End, Take};

use super::{ids, order, scene, tell};

#[tokio::test]
async fn permits_of_one_take_open_in_groups_at_twice_the_limits_rate() {
    for algorithm in ["sliding_log", "sliding_window"] {
        let limit = format!("[limit.acme]\nalgorithm = \"{algorithm}\"\npermits = 2000\nper = \"1s\"\n");
        let (_scratch, bucket, channel) = scene(&limit).await;
        bucket.fill(&channel.name, &ids(1..=60), End::Back, 100).await.unwrap();
        let Take::Forgot(forgotten) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
        tell(&bucket, &forgotten, 0).await;
        let mut opens = Vec::new();
        for want in [40, 20] {
            match bucket.take(&channel, order(want, 1)).await.unwrap() {
                Take::Granted { taken, .. } => {
                    opens.extend(taken.iter().map(|(_, permit)| permit.span.unwrap().opens_us));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(opens.len(), 60, "{algorithm}");
        let groups: Vec<&[i64]> = opens.chunk_by(|a, b| a == b).collect();
        assert!(groups.iter().all(|group| group.len() <= 4), "{algorithm}: {opens:?}");
        assert!(groups.windows(2).all(|two| two[1][0] - two[0][0] >= 1_000), "{algorithm}: {opens:?}");
        assert!(groups[..9].windows(2).all(|two| two[1][0] - two[0][0] == 1_000), "{algorithm}: {opens:?}");
    }
}
