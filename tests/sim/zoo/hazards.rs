//! The climate in which each mistake is played, where that is not the usual one.

pub const OF: &[(&str, &[&str])] = &[
    (
        "numbers twice",
        &["one permit of several limits is enough", "a permit that was spent before is accepted"],
    ),
    (
        "Redis forgets",
        &[
            "a Redis that forgot is restored without the spent permits",
            "a Redis that forgot begins no new generation",
            "permits of an older generation are accepted",
        ],
    ),
    (
        "the ledger is slow",
        &[
            "a count is restored by a node whose time for it is over",
            "each node has the same short time for a restore",
        ],
    ),
    ("Redis remembers what was", &["the counts of another Redis server are believed"]),
    ("clock set, windows", &["no limit rests after a clock was set"]),
    ("taken over, windows", &["no limit rests after another server took over"]),
    ("clock set, spans", &["a clock that was set forward makes spent permits look older"]),
    ("clock set, new nodes", &["heartbeats do not read Redis's clock"]),
    (
        "limits used up",
        &["of several limits only the first is spent", "the count expires apart from the log"],
    ),
    ("buckets used up", &["a token bucket gains its tokens without the lateness"]),
    ("left to people", &["a refund that may have been sent can be cancelled"]),
    (
        "decided on an old page",
        &[
            "a decision does not look at the version",
            "a refund that may have been executed is sent again without a confirmation",
        ],
    ),
    ("keys forgotten", &["a refund is sent again after the bank forgot its key"]),
    (
        "filled late",
        &["a refund is sent again where its bank knows no keys", "the claim also takes unknown refunds"],
    ),
    (
        "sent again",
        &[
            "a lost claim of a second send goes back to ready",
            "settling does not name the lease",
            "the outcome of a second send counts as that of the first",
        ],
    ),
    ("asked and overtaken", &["an inquiry settles a refund that was sent again since"]),
    ("permits for others", &["an acquired permit counts as over too early"]),
    (
        "others and a flush",
        &[
            "permits of an older generation are accepted for other services",
            "another service gets a permit that is over",
        ],
    ),
    (
        "files differ",
        &[
            "the rule of a looser file counts at once",
            "a looser rule that was looked up long ago rules at once",
            "a node that forgets what it wasted forgets the stricter rule, too",
        ],
    ),
    ("slow to connect", &["a permit is checked before the connection is open"]),
    ("asked and silent", &["an inquiry without an answer counts as not found"]),
    ("asked behind a proxy", &["a proxy's 404 is taken for the bank's"]),
    (
        "moved to another bank",
        &[
            "an inquiry goes to a bank at another address",
            "a refund is sent again to another address",
            "a refund that was sent to another address is never shown to a person",
        ],
    ),
    (
        "Postgres's clock set",
        &[
            "a lease ends by Postgres's clock alone",
            "a step of Postgres's clock lengthens no lease",
            "a deadline passes by Postgres's clock alone",
            "a step of Postgres's clock brings deadlines nearer",
        ],
    ),
    (
        "Postgres's clock set, graces",
        &[
            "a grace ends by Postgres's clock alone",
            "a step of Postgres's clock is part of a grace",
            "a node that starts believes Postgres's clock",
        ],
    ),
    (
        "Postgres's clock set, keys",
        &[
            "the age of a key is measured by Postgres's clock alone",
            "a step of Postgres's clock makes a key last longer",
        ],
    ),
    ("taken for dead", &["a node that was taken for dead does not bring its channels back"]),
    ("answers without a body", &["an answer that ends before any body counts as success"]),
];
