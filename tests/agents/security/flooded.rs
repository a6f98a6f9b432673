//! A flood of breadcrumbs with the tag of a question.

use crate::agent::elsewhere::person_says;
use crate::security::bound::asked_to_pay;
use crate::support::log::Log;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::NewBreadcrumb;
use universal_executor::store::{BreadcrumbStore as _, Commit, Write};

/// Maximum number of breadcrumbs that a run searches for an answer.
const LIMIT: usize = 16_384;

#[tokio::test(start_paused = true)]
async fn an_answer_behind_more_breadcrumbs_than_the_search_limit_is_ignored_with_a_warning() {
    for (others, payments) in [(LIMIT - 3, 1), (LIMIT, 0)] {
        let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);

        let (paid, _) = asked_to_pay(async |store, asked| {
            let other = NewBreadcrumb::new("human.response.v1")
                .tags(asked.tags.clone())
                .context(json!({}));
            let other = Write::Create(other);
            // The first breadcrumb resumes the run, which then searches for an answer.
            store.commit(vec![other.clone()].into()).await.unwrap();
            person_says(store, asked, json!({"approved": true})).await;
            for start in (0..others).step_by(Commit::MAX_WRITES) {
                let many = (others - start).min(Commit::MAX_WRITES);
                store
                    .commit(vec![other.clone(); many].into())
                    .await
                    .unwrap();
            }
        })
        .await;

        assert_eq!(paid, payments, "{others} others");
        let warning = "too many breadcrumbs match the answer that a run waits for";
        assert_eq!(
            log.text().contains(warning),
            payments == 0,
            "{others} others"
        );
    }
}
