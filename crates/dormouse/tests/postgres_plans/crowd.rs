//! A crowd of a million rows that nobody can run now costs no verb anything: neither when its plans were cached
//! while the table was empty, nor when they were made for the table as it is.

use std::fmt::Write;

use tokio::sync::OnceCell;

use crate::explain::{OPTIONS, Plan};
use crate::private::{closed, connect, execute, migrated, number, server};
use crate::tour::{Notes, Tour};
use crate::verbs::Verbs;

/// Enough rounds for the server to choose between generic and custom plans, which it does after five.
const ROUNDS: u32 = 8;
/// More rows than any verb needs for the few it is asked for.
const ROWS_MAX: u64 = 100;
/// How many times as many pages a verb may look at: an index over a million rows is two levels deeper.
const DEEPER: u64 = 3;
/// For the verbs that look at a handful, and at one index more as soon as there is something in it.
const PAGES: u64 = 20;

const CROWD: &str = "
    create function pg_temp.crowd(
        p_rows integer, p_status text, p_machine text default 'm', p_wake_at timestamptz default null,
        p_worker bigint default null, p_lane text default null, p_paused boolean default false,
        p_awaits text default null, p_key text default null, p_ended_at timestamptz default null
    ) returns void language sql as $$
        insert into dormouse.instances (
            id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, wake_at, worker,
            lane, blocked, paused, awaits, key, created_at, changed_at, ended_at, state
        )
        select nextval('dormouse.instance_ids'), 'default', p_machine, 1, p_status, 'start', 1, 'default', -9,
            now(), p_wake_at + n * interval '1 second', p_worker, p_lane, p_lane is not null, p_paused,
            case when p_awaits is not null then array[p_awaits] end, p_key || n, now(), now(), p_ended_at, 'null'
        from generate_series(1, p_rows) n
    $$;
    select pg_temp.crowd(298000, 'scheduled', p_wake_at => now() + interval '1 year');
    select pg_temp.crowd(100000, 'runnable', p_lane => 'hot');
    select pg_temp.crowd(100000, 'runnable', p_lane => 'slow/1');
    insert into dormouse.limits (namespace, name, width, changed_at, rate, period_us, burst, interval_ns)
    values ('other', 'slow', 10000, now(), 1, 86400000000, 1, 86400000000000);
    insert into dormouse.rates (namespace, lane, until_ns, interval_ns, at_ns)
    select 'default', 'slow/' || n, dormouse.ns(now()) + 86400000000000, 86400000000000, dormouse.ns(now())
    from generate_series(1, 100000) n;
    insert into dormouse.rate_wakes (namespace, lane, at, set_at)
    select 'default', 'slow/' || n, now() + interval '1 day', now() from generate_series(1, 100000) n;
    select pg_temp.crowd(100000, 'runnable', p_machine => 'unknown');
    select pg_temp.crowd(100000, 'runnable', p_paused => true);
    select pg_temp.crowd(100000, 'awaiting_signal', p_awaits => 'other', p_key => 'waits:');
    select pg_temp.crowd(2000, 'executing', p_worker => 1000000);
    select pg_temp.crowd(300000, 'done', p_ended_at => now(), p_key => 'ended:');
    insert into dormouse.signals (instance, id, name, at, payload)
    select -n, nextval('dormouse.signal_ids'), 'other', now(), 'null' from generate_series(1, 300000) n;
    insert into dormouse.tags (namespace, tag, instance)
    select 'default', tag, -n from generate_series(1, 100000) n cross join unnest('{t,toured,u}'::text[]) tag;
    insert into dormouse.history (instance, seq, kind, version, step, at, state, id)
    select -n, 1, 'created', 1, 'start', now(), 'null', 0 from generate_series(1, 300000) n;
    insert into dormouse.units (id, instance, round, shape, status, transport, on_failure, interactions, next_item,
        outputs_max, opened_at)
    select -n, -n, 1, 'one', 'open', 'bank', 'fail', 1, 1, 1, now() from generate_series(1, 300000) n;
    insert into dormouse.interactions (id, unit, item, instance, namespace, machine, version, step, transport, status,
        idempotency_key, opened_at, deadline, send_at, request)
    select -n, -n, 0, -n, 'default', 'm', 1, 'start', 'bank', 'pending', 'k', now(), now() + interval '1 year',
        now() + interval '1 year', 'null'
    from generate_series(1, 300000) n;
    insert into dormouse.mail (sender, seq, namespace, kind, address, name, depth, at, deliver_at, tries, body)
    select -n, 1, 'default', 'signal', 'key:held', 'go', 1, now(), now() + interval '1 year', 1, 'null'
    from generate_series(1, 300000) n;
";

/// The smallest of the large tables has more rows than this.
const LARGE: i64 = 100_000;

/// A crowd that can move, of which a verb takes its few.
const BACKLOG: &str = "
    select pg_temp.crowd(100000, 'runnable');
    select pg_temp.crowd(100000, 'scheduled', p_wake_at => now() - interval '2 days');
    select pg_temp.crowd(2000, 'executing', p_worker => 2000000);
    insert into dormouse.workers overriding system value
    values (2000000, 'gone', 'elsewhere', 1, '', now(), '-infinity', null, '{}', '{}', '{}');
    analyze;
";

/// What the verbs did at three moments of one connection's life.
struct Moments {
    empty: Notes,
    grown: Notes,
    analyzed: Notes,
    /// Rows that were read from end to end since the table had grown.
    sequential_rows: i64,
}

async fn moments() -> &'static Moments {
    static MOMENTS: OnceCell<Moments> = OnceCell::const_new();
    MOMENTS.get_or_init(observe).await
}

async fn observe() -> Moments {
    let server = server(&[("wal_level", "minimal"), ("max_wal_senders", "0"), ("shared_buffers", "1GB")]);
    let url = migrated(&server, "crowd").await;
    let mut other = connect(&url).await;
    // As autovacuum leaves a table that is known to be empty, on which the worst plans are as good as the best.
    execute(&mut other, "vacuum analyze").await;
    let verbs = Verbs::on(&format!("{url}?connections=2&options={OPTIONS}")).await;
    let mut tour = Tour::new(&server, verbs).await;
    let empty = tour.go(ROUNDS).await;
    execute(&mut other, CROWD).await;
    execute(&mut other, "select pg_stat_reset()").await;
    // The first round after the growth also looks for pages with room.
    let grown = tour.go(2).await;
    execute(&mut other, "analyze").await;
    let mut analyzed = tour.go(ROUNDS).await;
    execute(&mut other, BACKLOG).await;
    analyzed.append(&mut tour.take_a_few().await);
    tour.verbs.store.close().await;
    let sequential_rows = sequential_rows(&mut other).await;
    Moments { empty, grown, analyzed, sequential_rows }
}

/// Rows of the large tables that were read from end to end.
async fn sequential_rows(conn: &mut sqlx::PgConnection) -> i64 {
    closed(conn).await;
    let sql = "select sum(seq_tup_read) from pg_stat_user_tables
        where schemaname = 'dormouse'
            and relname in ('instances', 'signals', 'history', 'units', 'interactions', 'mail')";
    number(conn, sql).await
}

#[tokio::test]
async fn no_hot_verb_reads_a_large_table_from_end_to_end() {
    let moments = moments().await;
    let found = complaints(moments, |plan| {
        let tables = plan.sequential();
        if tables.is_empty() { None } else { Some(format!("reads all of {tables:?}")) }
    });
    assert!(found.is_empty(), "{found}");
    // A server tells what a connection read up to some seconds late: a few rows may be from before the crowd came.
    let rows = moments.sequential_rows;
    assert!(rows < LARGE, "{rows} rows were read from end to end");
}

#[tokio::test]
async fn no_hot_verb_sorts_counts_or_throws_away_the_backlog() {
    let found = complaints(moments().await, |plan| {
        let rows = plan.rows_max();
        if rows <= ROWS_MAX { None } else { Some(format!("handles {rows} rows")) }
    });
    assert!(found.is_empty(), "{found}");
}

#[tokio::test]
async fn a_verb_looks_at_no_more_pages_of_a_crowded_table_than_of_an_empty_one() {
    let Moments { empty, grown, analyzed, .. } = moments().await;
    let mut table = String::new();
    let mut worst = Vec::new();
    for (verb, plans) in empty {
        let pages = |plans: &[Plan]| plans.last().expect("a verb sends a statement").buffers();
        let (empty, grown, analyzed) = (pages(plans), pages(&grown[verb]), pages(&analyzed[verb]));
        writeln!(table, "{verb:30} {empty:>6} {grown:>6} {analyzed:>6}").expect("a string takes it");
        if grown.max(analyzed) > empty * DEEPER + PAGES {
            worst.push(verb);
        }
    }
    println!("pages: empty, grown, analyzed\n{table}");
    assert!(worst.is_empty(), "{worst:?} are not flat:\n{table}");
}

/// What is wrong with the plans of the crowded table.
fn complaints(moments: &Moments, complaint: impl Fn(&Plan) -> Option<String>) -> String {
    let mut found = String::new();
    for (moment, notes) in [("grown", &moments.grown), ("analyzed", &moments.analyzed)] {
        for (verb, plans) in notes {
            assert!(!plans.is_empty(), "{verb} left no plan in the log");
            for plan in plans {
                if let Some(complaint) = complaint(plan) {
                    writeln!(found, "{verb} ({moment}) {complaint}:\n{}", plan.shown()).expect("it is taken");
                }
            }
        }
    }
    found
}
