//! The unit of systemd, as far as it can be judged without booting it; `make compat` boots it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_unit_exposes_no_more_than_is_said() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/refundd.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    for line in [
        "NoExecPaths=/",
        "SocketBindDeny=any",
        "SocketBindAllow=ipv4:tcp:8080",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        // Not about exposure: the journal drops no line. systemd takes a 0 for "not set".
        "LogRateLimitIntervalSec=1s",
        "LogRateLimitBurst=1000000",
    ] {
        assert!(text.lines().any(|is| is == line), "{line}");
    }
    let judge = |unit: &Path| {
        Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--threshold=11"])
            .arg(unit)
            .output()
    };
    // Only a system with systemd 250 or later can judge it.
    let Ok(judged) = judge(&unit) else { return };
    if String::from_utf8_lossy(&judged.stderr).contains("option") {
        return;
    }
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("refundd.service");
    std::fs::write(&bare, text.replace("NoNewPrivileges=yes\n", "")).unwrap();
    assert!(!judge(&bare).unwrap().status.success(), "the judge sees a missing line");
}
