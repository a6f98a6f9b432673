//! tmp
mod postgres_sides;
#[path = "support/quick.rs"]
mod quick;
use postgres_sides::{block_on, store};
use serde_json::json;
use sqlx::Connection as _;
use std::time::{Duration, Instant};
use universal_executor::store::*;
use universal_executor::*;
fn med(v: &mut Vec<Duration>) -> Duration {
    v.sort();
    v[v.len() / 2]
}
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
}
fn main() {
    let url = std::env::var("POSTGRES_URL").unwrap();
    let schema = format!("tmp_{}", std::process::id());
    block_on(async {
        let st = store::connect(&url, &schema).await;
        let ids = store::fill(&st, 1280).await;
        store::enqueue(&st, &ids).await;
        let (mut a, mut b, mut c, mut d) = (vec![], vec![], vec![], vec![]);
        let c0 = cpu();
        let t0 = Instant::now();
        for _ in 0..1280 {
            let t = Instant::now();
            st.claim_next(1, &[ExecutorLimits::new("answerer", 1)])
                .await
                .unwrap();
            a.push(t.elapsed());
            let t = Instant::now();
            let p = st.runs(&RunFilter::parked()).await.unwrap();
            b.push(t.elapsed());
            let t = Instant::now();
            let Claim::Granted { lease, .. } = st.claim(&p[0].run, None).await.unwrap() else {
                panic!()
            };
            c.push(t.elapsed());
            let t = Instant::now();
            let answer = NewBreadcrumb::new("answer.v1").tag("session:1").context(json!({"text": "what somebody said, at the length at which people say things to one another"}));
            st.commit(Commit {
                writes: vec![Write::Create(answer)],
                end: Some((lease, RunEnd::Done)),
            })
            .await
            .unwrap();
            d.push(t.elapsed());
        }
        println!(
            "store claim {:?} parked {:?} take {:?} commit {:?} total/run {:?} cpu/run {:.3} ms",
            med(&mut a),
            med(&mut b),
            med(&mut c),
            med(&mut d),
            t0.elapsed() / 1280,
            (cpu() - c0) / 1280.0
        );
        st.close().await;
        let st = store::connect(&url, &format!("{schema}b")).await;
        let ids = store::fill(&st, 1280).await;
        store::enqueue(&st, &ids).await;
        st.close().await;
        let raw = postgres_sides::raw::Raw::connect(&url, &format!("{schema}b")).await;
        let c0 = cpu();
        let t = raw.finish(1280, 1).await;
        println!("hand {:?} cpu/run {:.3}", t / 1280, (cpu() - c0) / 1280.0);
        let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "DROP SCHEMA {schema} CASCADE; DROP SCHEMA {schema}b CASCADE"
        )))
        .execute(&mut other)
        .await
        .unwrap();
    });
}
