//! What the hot statements of the SQLite store cost: their plans, and the work they do on a crowded table.

use rusqlite::{Connection, Params, StatementStatus, named_params};

const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sqlite/migrations");
const BACKLOG_AWAITING: &str = include_str!("../src/store/sqlite/backlog_awaiting.sql");
const BACKLOG_NAMES: &str = include_str!("../src/store/sqlite/backlog_names.sql");
const BACKLOG_OLDEST: &str = include_str!("../src/store/sqlite/backlog_oldest.sql");
const CANCEL_UNDOES: &str = include_str!("../src/store/sqlite/cancel_undoes.sql");
const CLAIM: &str = include_str!("../src/store/sqlite/claim.sql");
const CLAIM_LINE_PRIORITY: &str = include_str!("../src/store/sqlite/claim_line_priority.sql");
const CLAIM_LINE_SHARE: &str = include_str!("../src/store/sqlite/claim_line_share.sql");
const CLAIM_PRIORITY: &str = include_str!("../src/store/sqlite/claim_priority.sql");
const CLAIM_SHARE: &str = include_str!("../src/store/sqlite/claim_share.sql");
const CLAIM_TAKE: &str = include_str!("../src/store/sqlite/claim_take.sql");
const CLAIM_CHILDREN: &str = include_str!("../src/store/sqlite/claim_children.sql");
const COLLECT: &str = include_str!("../src/store/sqlite/collect.sql");
const COMMIT_NEXT: &str = include_str!("../src/store/sqlite/commit_next.sql");
const DUE: &str = include_str!("../src/store/sqlite/due.sql");
const DUE_NEXT: &str = include_str!("../src/store/sqlite/due_next.sql");
const FIND_KEY: &str = include_str!("../src/store/sqlite/find_key.sql");
const HISTORY: &str = include_str!("../src/store/sqlite/history.sql");
const HISTORY_BACK: &str = include_str!("../src/store/sqlite/history_back.sql");
const INBOX: &str = include_str!("../src/store/sqlite/inbox.sql");
const INBOX_PAGE: &str = include_str!("../src/store/sqlite/inbox_page.sql");
const JOIN: &str = include_str!("../src/store/sqlite/join.sql");
const KEY_HOLDER: &str = include_str!("../src/store/sqlite/key_holder.sql");
const LANE_AFTER: &str = include_str!("../src/store/sqlite/lane_after.sql");
const LANE_HOLDERS: &str = include_str!("../src/store/sqlite/lane_holders.sql");
const LANE_LINE: &str = include_str!("../src/store/sqlite/lane_line.sql");
const LANE_READY: &str = include_str!("../src/store/sqlite/lane_ready.sql");
const LANE_TURN: &str = include_str!("../src/store/sqlite/lane_turn.sql");
const RATE_DUE: &str = include_str!("../src/store/sqlite/rate_due.sql");
const LANE_NEXT: &str = include_str!("../src/store/sqlite/lane_next.sql");
const LIST_AWAITING: &str = include_str!("../src/store/sqlite/list_awaiting.sql");
const LIST_BY_TAG: &str = include_str!("../src/store/sqlite/list_by_tag.sql");
const LIST_FAILED: &str = include_str!("../src/store/sqlite/list_failed.sql");
const INTERACTIONS_OPEN: &str = include_str!("../src/store/sqlite/interactions_open.sql");
const INTERACTION_BY_CORRELATION: &str = include_str!("../src/store/sqlite/interaction_by_correlation.sql");
const OUTBOX: &str = include_str!("../src/store/sqlite/outbox.sql");
const OUTBOX_NAMESPACE: &str = include_str!("../src/store/sqlite/outbox_namespace.sql");
const OUTBOX_NEXT: &str = include_str!("../src/store/sqlite/outbox_next.sql");
const UNIT_DUE: &str = include_str!("../src/store/sqlite/unit_due.sql");
const UNIT_DUE_NEXT: &str = include_str!("../src/store/sqlite/unit_due_next.sql");
const UNIT_ITEMS: &str = include_str!("../src/store/sqlite/unit_items.sql");
const UNIT_LET_GO: &str = include_str!("../src/store/sqlite/unit_let_go.sql");
const OUTBOXES: &str = include_str!("../src/store/sqlite/outboxes.sql");
const OUTBOXES_DEPTH: &str = include_str!("../src/store/sqlite/outboxes_depth.sql");
const OUTBOXES_TRANSPORT: &str = include_str!("../src/store/sqlite/outboxes_transport.sql");
const BACKLOG_LONGEST: &str = include_str!("../src/store/sqlite/backlog_longest.sql");
const UNIT_LOAD: &str = include_str!("../src/store/sqlite/unit_load.sql");
const UNIT_NEXT: &str = include_str!("../src/store/sqlite/unit_next.sql");
const UNIT_OF: &str = include_str!("../src/store/sqlite/unit_of.sql");
const STATS_OF_NAMESPACE: &str = include_str!("../src/store/sqlite/stats_of_namespace.sql");
const REAP: &str = include_str!("../src/store/sqlite/reap.sql");

/// Rows of each kind that cannot run now.
const CROWD: u32 = 100_000;

#[test]
fn every_hot_statement_uses_its_index_and_neither_scans_nor_sorts() {
    let conn = database();
    for (sql, index) in [
        (BACKLOG_AWAITING, "instances_awaiting"),
        (BACKLOG_LONGEST, "instances_awaiting"),
        (BACKLOG_NAMES, "instances_awaiting"),
        (BACKLOG_OLDEST, "instances_claim"),
        (CLAIM, "instances_claim"),
        (CLAIM_LINE_PRIORITY, "instances_line"),
        (CLAIM_LINE_SHARE, "instances_line"),
        (CLAIM_PRIORITY, "instances_claim"),
        (CLAIM_SHARE, "instances_claim"),
        (CLAIM_CHILDREN, "instances_parent"),
        (COLLECT, "instances_ended"),
        (DUE, "instances_due"),
        (DUE_NEXT, "instances_due"),
        (HISTORY, "history_seq"),
        (HISTORY_BACK, "history_seq"),
        (INBOX, "signals_inbox"),
        (INBOX_PAGE, "signals_inbox"),
        (KEY_HOLDER, "instances_key_guard"),
        (LIST_FAILED, "instances_failed"),
        (LANE_AFTER, "instances_lane"),
        (LANE_HOLDERS, "instances_lane"),
        (LANE_NEXT, "instances_lane"),
        (LANE_LINE, "instances_lane"),
        (LANE_READY, "instances_lane"),
        (LANE_TURN, "instances_lane"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index), "{sql}\ndoes not use {index}:\n{plan}");
        walks_no_table(sql, &plan);
        assert!(!plan.contains("TEMP B-TREE"), "{sql}\nsorts:\n{plan}");
        assert!(sql.contains(index), "its header names its index:\n{sql}");
    }
}

#[test]
fn every_statement_of_units_uses_its_index() {
    let conn = database();
    for (sql, index) in [
        (INTERACTIONS_OPEN, "interactions_open"),
        (INTERACTION_BY_CORRELATION, "interactions_correlation"),
        (OUTBOX, "interactions_outbox"),
        (OUTBOX_NAMESPACE, "interactions_outbox"),
        (OUTBOX_NEXT, "interactions_outbox"),
        (OUTBOXES, "interactions_outbox"),
        (OUTBOXES_DEPTH, "interactions_outbox"),
        (OUTBOXES_TRANSPORT, "interactions_outbox"),
        (UNIT_DUE, "interactions_due"),
        (UNIT_DUE_NEXT, "interactions_due"),
        (UNIT_ITEMS, "interactions_item"),
        (UNIT_LET_GO, "interactions_item"),
        (UNIT_LOAD, "units_round"),
        (UNIT_NEXT, "interactions_item"),
        (UNIT_OF, "units_round"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index), "{sql}\ndoes not use {index}:\n{plan}");
        assert!(sql.contains(index), "its header names its index:\n{sql}");
    }
}

#[test]
fn a_row_that_is_known_by_its_id_is_found_by_it() {
    let conn = database();
    for sql in [COMMIT_NEXT, CLAIM_TAKE, JOIN] {
        let plan = plan(&conn, sql);
        assert_eq!(plan, "SEARCH instances USING INTEGER PRIMARY KEY (rowid=?)", "{sql}");
    }
}

#[test]
fn whether_a_cancel_undoes_is_found_by_the_machine_and_the_instance() {
    let plan = plan(&database(), CANCEL_UNDOES);
    assert!(plan.contains("SEARCH m USING PRIMARY KEY (name=? AND version=?)"), "{plan}");
    assert!(plan.contains("signals_dedup (instance=? AND dedup_key=?)"), "{plan}");
}

#[test]
fn the_counts_of_a_namespace_are_read_without_those_of_the_others() {
    let plan = plan(&database(), STATS_OF_NAMESPACE);
    assert!(
        plan.contains(
            "SEARCH counted_places USING COVERING INDEX sqlite_autoindex_counted_places_1 (namespace=?)"
        ),
        "{plan}"
    );
    assert!(plan.contains("instances_claimed"), "{plan}");
}

#[test]
fn the_reaper_walks_the_workers_and_then_only_what_they_hold() {
    let conn = database();
    let plan = plan(&conn, REAP);
    assert!(plan.contains("instances_claimed (worker=?)"), "{plan}");
    walks_no_table(REAP, &plan);
}

#[test]
fn who_waits_for_a_signal_is_found_by_hops_over_the_distinct_sets() {
    let conn = database();
    let plan = plan(&conn, LIST_AWAITING);
    walks_no_table(LIST_AWAITING, &plan);
    let place = |line: &str| plan.find(line).unwrap_or_else(|| panic!("no {line:?} in\n{plan}"));
    let rows = place("SEARCH i USING INDEX instances_awaiting (awaits=?)");
    assert!(
        place("SCAN json_each VIRTUAL TABLE") < rows,
        "it looks into a set before it walks its rows:\n{plan}"
    );
    place("SEARCH instances USING COVERING INDEX instances_awaiting (awaits>?)");
}

#[test]
fn who_waits_for_something_else_costs_nothing() {
    let (empty, crowded) = (database(), database());
    for (conn, others) in [(&empty, 1), (&crowded, CROWD)] {
        insert(conn, "'awaiting_signal'", 3, r#"awaits => '["go"]'"#);
        insert(conn, "'awaiting_signal'", others, r#"awaits => '["other"]'"#);
    }
    let none = None::<i64>;
    let asked = named_params! {
        ":awaiting": "go", ":after": none, ":namespace": none, ":machine": none, ":queue": none,
        ":created_from": none, ":created_before": none, ":roots": 0, ":limit": 10,
    };
    costs_the_same(&empty, &crowded, LIST_AWAITING, asked);
}

#[test]
fn who_has_another_tag_or_none_costs_nothing() {
    let (empty, crowded) = (database(), database());
    for (conn, others) in [(&empty, 1), (&crowded, CROWD)] {
        insert(conn, "'done'", others, "ended_at => 1");
        insert(conn, "'done'", 3, r#"tags => '["a","b"]'"#);
        insert(conn, "'done'", others, r#"tags => '["b"]'"#);
        conn.execute_batch(
            "insert into tags (namespace, tag, instance)
             select i.namespace, t.value, i.id from instances i, json_each(i.tags) t",
        )
        .expect("tags");
    }
    let plan = plan(&empty, LIST_BY_TAG);
    let by_tag = "SEARCH t USING PRIMARY KEY (namespace=? AND tag=?";
    assert!(plan.contains(by_tag) && plan.contains("SEARCH i USING INTEGER PRIMARY KEY"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "it sorts:\n{plan}");
    let none = None::<i64>;
    let asked = named_params! {
        ":tag": "a", ":tags": r#"["a","b"]"#, ":after": none, ":namespace": "default", ":machine": none,
        ":status": none, ":queue": none, ":created_from": none, ":created_before": none, ":roots": 0, ":limit": 10,
    };
    costs_the_same(&empty, &crowded, LIST_BY_TAG, asked);
}

#[test]
fn a_key_is_found_among_those_that_had_it() {
    let conn = database();
    let plan = plan(&conn, FIND_KEY);
    assert!(plan.contains("instances_key (namespace=? AND key=?)"), "{plan}");
}

#[test]
fn what_cannot_run_now_costs_a_claim_nothing() {
    let (empty, crowded) = (database(), crowded());
    for conn in [&empty, &crowded] {
        insert(conn, "'runnable'", 1, "machine => 'm'");
    }
    claim_costs_the_same(&empty, &crowded, "default");
}

#[test]
fn a_share_and_how_much_it_has_cost_the_others_nothing() {
    let (few, many) = (database(), database());
    for (conn, rows) in [(&few, 1), (&many, CROWD)] {
        insert(conn, "'runnable'", rows, "machine => 'm', share => 'default\u{1}flood'");
        insert(conn, "'runnable'", 1, "machine => 'm', share => 'default\u{1}stranger'");
    }
    claim_costs_the_same(&few, &many, "default\u{1}stranger");
    costs_the_same(&few, &many, CLAIM_LINE_SHARE, ("default", "m", 1, 0, "default\u{1}flood\u{1}"));
}

#[test]
fn a_hop_costs_the_same_however_many_shares_there_are() {
    let (few, many) = (database(), database());
    for (conn, shares) in [(&few, 3), (&many, 5000)] {
        insert(conn, "'runnable'", shares, "machine => 'm', share => 'default' || char(1) || value");
        insert(conn, "'runnable'", 1, "machine => 'm', share => 'default\u{1}z'");
    }
    claim_costs_the_same(&few, &many, "default\u{1}z");
}

/// Each statement of a claim that serves this share.
fn claim_costs_the_same(small: &Connection, large: &Connection, share: &str) {
    costs_the_same(small, large, CLAIM, ("default", "m", 1, "default", 0, share, 10));
    costs_the_same(small, large, CLAIM_SHARE, ("default", "m", 1, "default", 0, share));
    costs_the_same(small, large, CLAIM_LINE_SHARE, ("default", "m", 1, 0, share));
    costs_the_same(small, large, CLAIM_PRIORITY, ("default", "m", 1, "default", -1));
    costs_the_same(small, large, CLAIM_LINE_PRIORITY, ("default", "m", 1, -1));
    // From before it, as from the share that has its turn before.
    costs_the_same(small, large, CLAIM_LINE_SHARE, ("default", "m", 1, 0, "a"));
}

#[test]
fn a_crowd_costs_the_clock_the_reaper_and_the_lanes_nothing() {
    let (empty, crowded) = (database(), crowded());
    for conn in [&empty, &crowded] {
        insert(conn, "'scheduled'", 1, "wake_at => 5");
        insert(conn, "'runnable'", 2, "lane => 'quiet', blocked => 1");
        insert(conn, "'executing'", 1, "lane => 'quiet', worker => 7");
        insert(conn, "'done'", 1, "ended_at => 5");
        conn.execute_batch(
            "insert into workers (id, name, host, pid, birth, started_at, lease_until, queues, machines)
             values (7, 'gone', '', 0, '', 0, 0, '[]', '[]')",
        )
        .expect("a worker");
    }
    costs_the_same(&empty, &crowded, DUE, (10, 1));
    costs_the_same(&empty, &crowded, DUE_NEXT, ());
    costs_the_same(&empty, &crowded, LANE_NEXT, ("default", "quiet", 1));
    costs_the_same(&empty, &crowded, LANE_HOLDERS, ("default", "quiet", 0, 2));
    costs_the_same(&empty, &crowded, REAP, (10, 1));
    costs_the_same(&empty, &crowded, COLLECT, (10, 1, None::<String>));
}

#[test]
fn a_long_line_behind_one_lane_costs_neither_the_lane_nor_a_claim() {
    let (short, long) = (database(), database());
    for (conn, in_line) in [(&short, 3), (&long, 5000)] {
        insert(conn, "'executing'", 1, "lane => 'hot', worker => 1");
        insert(conn, "'runnable'", in_line, "lane => 'hot', blocked => 1");
        insert(conn, "'runnable'", 1, "machine => 'm'");
    }
    claim_costs_the_same(&short, &long, "default");
    costs_the_same(&short, &long, LANE_NEXT, ("default", "hot", 3));
    costs_the_same(&short, &long, LANE_HOLDERS, ("default", "hot", 0, 4));
    costs_the_same(&short, &long, LANE_AFTER, ("default", "a", "z"));
}

#[test]
fn throttled_lanes_cost_the_clock_and_the_others_nothing() {
    let (few, many) = (database(), database());
    for (conn, rows) in [(&few, 3), (&many, CROWD)] {
        insert(conn, "'runnable'", rows, "machine => 'm', priority => -9, lane => 'slow/1', blocked => 1");
        insert(
            conn,
            "'runnable'",
            rows,
            "machine => 'm', priority => -9, lane => 'slow/' || value, blocked => 1",
        );
        let wakes = format!(
            "with recursive numbers (value) as (values (1) union all select value + 1 from numbers where value < {rows})
             insert into rate_wakes (namespace, lane, at, set_at)
             select 'default', 'slow/' || value, 1000000 + value, 0 from numbers;
             insert into rate_wakes (namespace, lane, at, set_at) values ('default', 'slow/1', 5, 0);"
        );
        conn.execute_batch(&wakes).expect("rows");
        insert(conn, "'runnable'", 1, "machine => 'm'");
    }
    claim_costs_the_same(&few, &many, "default");
    costs_the_same(&few, &many, DUE_NEXT, ());
    costs_the_same(&few, &many, RATE_DUE, (10, 256));
    costs_the_same(&few, &many, LANE_LINE, ("default", "slow/1", 1, 2));
    costs_the_same(&few, &many, LANE_READY, ("default", "slow/1", 1, 2));
    costs_the_same(&few, &many, LANE_NEXT, ("default", "slow/1", 2));
}

fn database() -> Connection {
    let conn = Connection::open_in_memory().expect("a database in memory");
    let files = std::fs::read_dir(MIGRATIONS).expect("the migrations");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort_unstable();
    for file in files {
        let migration = std::fs::read_to_string(&file).expect("a migration");
        conn.execute_batch(&migration).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    conn
}

/// A table full of rows of every kind that a claim of machine `m` must not meet.
fn crowded() -> Connection {
    let conn = database();
    insert(&conn, "'scheduled'", CROWD, "machine => 'm', priority => -9, wake_at => 1000000");
    insert(&conn, "'runnable'", CROWD, "machine => 'm', priority => -9, lane => 'hot', blocked => 1");
    insert(&conn, "'runnable'", CROWD, "machine => 'm', priority => -9, paused => 1");
    insert(&conn, "'runnable'", CROWD, "machine => 'unknown', priority => -9");
    insert(&conn, "'executing'", CROWD, "machine => 'm', priority => -9, worker => 1");
    insert(&conn, "'done'", CROWD, "machine => 'm', priority => -9, ended_at => 1000000");
    conn
}

/// Inserts rows in a status, with some columns set: `name => value, …`.
fn insert(conn: &Connection, status: &str, rows: u32, columns: &str) {
    let mut names =
        "namespace, version, status, step, seq, queue, runnable_at, created_at, changed_at, state".to_owned();
    let mut values = format!("'default', 1, {status}, 'start', 1, 'default', value, 0, 0, 'null'");
    for (column, default) in [("machine", "'other'"), ("priority", "0")] {
        if !columns.contains(column) {
            names += &format!(", {column}");
            values += &format!(", {default}");
        }
    }
    for (name, value) in columns.split(", ").filter_map(|column| column.split_once(" => ")) {
        names += &format!(", {name}");
        values += &format!(", {value}");
    }
    let sql = format!(
        "with recursive numbers (value) as (values (1) union all select value + 1 from numbers where value < {rows})
         insert into instances ({names}) select {values} from numbers"
    );
    conn.execute(&sql, []).expect("rows");
}

fn plan(conn: &Connection, sql: &str) -> String {
    let mut explain = conn.prepare(&format!("explain query plan {sql}")).expect("a valid statement");
    let mut rows = explain.raw_query();
    let mut plan = Vec::new();
    while let Some(row) = rows.next().expect("a plan") {
        plan.push(row.get::<_, String>(3).expect("a line"));
    }
    plan.join("\n")
}

/// A scan of `instances`, under its name or an alias, by no index at all.
fn walks_no_table(sql: &str, plan: &str) {
    for line in plan.lines() {
        for name in ["instances", "i", "p"] {
            assert_ne!(line, format!("SCAN {name}"), "{sql}\nwalks the table:\n{plan}");
        }
    }
}

/// Runs a statement to its end on both, and compares how many instructions that took.
fn costs_the_same<P: Params + Clone>(small: &Connection, large: &Connection, sql: &str, params: P) {
    let (small_steps, small_rows) = steps(small, sql, params.clone());
    let (large_steps, large_rows) = steps(large, sql, params);
    assert_eq!(small_rows, large_rows, "{sql}\nfinds something else");
    assert!(small_rows > 0, "{sql}\nfinds nothing, which proves nothing");
    let (low, high) = (small_steps * 8 / 10, small_steps * 12 / 10);
    assert!((low..=high).contains(&large_steps), "{sql}\ntook {small_steps} and then {large_steps} steps");
}

fn steps<P: Params>(conn: &Connection, sql: &str, params: P) -> (i32, usize) {
    let mut statement = conn.prepare(sql).expect("a valid statement");
    let mut rows = statement.query(params).expect("a query");
    let mut count = 0;
    while rows.next().expect("a row").is_some() {
        count += 1;
    }
    drop(rows);
    (statement.get_status(StatementStatus::VmStep), count)
}
