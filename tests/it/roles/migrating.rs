//! Who may migrate, and what the others are told.

use super::become_a_stranger;
use crate::harness::Scratch;

#[tokio::test]
async fn migrate_as_a_role_that_may_not_says_how_to_run_it_as_the_owner() {
    let mut scratch = Scratch::new().await;
    let name = scratch.name.clone();
    scratch.sql("drop schema refundd cascade").await;
    become_a_stranger(&mut scratch).await;
    let refused = scratch.store.migrate().await.unwrap_err().to_string();
    for words in [
        &format!("role `node_of_{name}` may create no schema in database `{name}`"),
        "run `refundd migrate` as `refundd`, its owner, as \"Migrating as the owner\" in docs/upgrading.md says",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    // An address there would invite a password on the command line.
    assert!(!refused.contains("postgres://"), "{refused}");
    // A role without any right on a schema that is there.
    let mut scratch = Scratch::new().await;
    become_a_stranger(&mut scratch).await;
    let refused = scratch.store.migrate().await.unwrap_err().to_string();
    let words = "run `refundd migrate` as `refundd` or as a member of it, as \"Migrating as the owner\" in docs/upgrading.md says";
    assert!(refused.contains(words) && !refused.contains("postgres://"), "{refused}");
}
