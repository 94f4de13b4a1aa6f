//! The climate in which each mistake is played, where that is not the usual one.

pub const OF: &[(&str, &[&str])] = &[
    (
        "numbers twice",
        &["one permit of several limits is enough", "a permit that was spent before is good enough"],
    ),
    (
        "Redis forgets",
        &[
            "a Redis that forgot is told of nothing spent",
            "a Redis that forgot begins no new generation",
            "permits of an older generation are good",
        ],
    ),
    ("Redis remembers what was", &["whose memory it is does not matter"]),
    ("clock set, windows", &["nothing rests after a clock was set"]),
    ("taken over, windows", &["nothing rests after another server took over"]),
    ("clock set, spans", &["a clock that was set forward ages what was spent"]),
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
            "what may have been executed is sent again without a confirmation",
        ],
    ),
    ("keys forgotten", &["a refund is sent again after the bank forgot its key"]),
    (
        "filled late",
        &["a refund is sent again where its bank knows no keys", "the claim takes what is unknown, too"],
    ),
    (
        "sent again",
        &[
            "a lost claim of a second send goes back to ready",
            "settling does not name the epoch",
            "what a second send came to is taken for the first's",
        ],
    ),
    ("asked and overtaken", &["an inquiry settles what was sent again since"]),
    ("permits for others", &["what another service acquired is taken for over too early"]),
    (
        "others and a flush",
        &[
            "permits of an older generation are good for other services",
            "another service is told of a permit that is over",
        ],
    ),
    (
        "files differ",
        &[
            "a looser file rules at once",
            "a looser rule that was looked up long ago rules at once",
            "a node that forgets what it wasted forgets the stricter rule, too",
        ],
    ),
    ("slow to connect", &["a permit is looked at before the connection is open"]),
    ("asked and silent", &["an inquiry without an answer is taken for not found"]),
    ("asked behind a proxy", &["a proxy's 404 is taken for the bank's"]),
    (
        "moved to another bank",
        &[
            "the bank of another address is asked",
            "a refund is sent again to another address",
            "what was sent to another address is shown to nobody",
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
            "a key is counted on by Postgres's clock alone",
            "a step of Postgres's clock makes a key last longer",
        ],
    ),
    ("taken for dead", &["a node that was taken for dead does not bring its channels back"]),
    ("answers without a body", &["an answer that ends before any body counts as success"]),
];
