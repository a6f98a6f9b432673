#![doc = include_str!("links.md")]
#![doc = include_str!("../../docs/README.md")]
// Each page is a Markdown file in `docs/`, which GitHub shows as well. `links.md` defines the links between the pages for rustdoc;
// the definitions at the end of each page are for GitHub, and rustdoc ignores them because a definition that comes first wins.

/// Declares one module for each page of the guide, with the page as documentation. The code blocks of a page are documentation tests if the
/// page's features are enabled.
macro_rules! pages {
    ($($name:ident = $file:literal $(needs $($feature:literal)+)?;)+) => { $(
        #[cfg(any(not(doctest), all($($(feature = $feature),+)?)))]
        #[doc = include_str!("links.md")]
        #[doc = include_str!(concat!("../../docs/", $file, ".md"))]
        pub mod $name {}
    )+ };
}

#[cfg(test)]
pub(crate) mod tests;

pages! {
    concepts = "concepts" needs "full";
    troubleshooting = "troubleshooting" needs "full";
    comparison = "comparison";
    glossary = "glossary";
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/tutorial/README.md")]
pub mod tutorial {
    pages! {
        executor = "tutorial/executor" needs "full";
        agent = "tutorial/agent" needs "full";
        approval = "tutorial/approval" needs "full";
        chat = "tutorial/chat" needs "full";
        flow = "tutorial/flow" needs "full";
        testing = "tutorial/testing" needs "full" "testing";
        production = "tutorial/production" needs "full";
    }
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/cookbook/README.md")]
pub mod cookbook {
    pages! {
        approvals = "cookbook/approvals" needs "agents" "sqlite";
        chat = "cookbook/chat" needs "agents" "sqlite";
        context = "cookbook/context" needs "full";
        custom_source = "cookbook/custom-source" needs "full" "conformance";
        custom_store = "cookbook/custom-store" needs "full" "conformance";
        external_calls = "cookbook/external-calls" needs "full";
        external_programs = "cookbook/external-programs" needs "full";
        failed_runs = "cookbook/failed-runs" needs "full";
        flows = "cookbook/flows" needs "full";
        guardrails = "cookbook/guardrails" needs "full";
        handoffs = "cookbook/handoffs" needs "full";
        json_definitions = "cookbook/json-definitions" needs "full";
        limits_and_retries = "cookbook/limits-and-retries" needs "full";
        mcp = "cookbook/mcp" needs "full";
        metrics = "cookbook/metrics" needs "full";
        models = "cookbook/models" needs "agents";
        nats = "cookbook/nats" needs "full";
        on_an_rcrt_server = "cookbook/on-an-rcrt-server" needs "rcrt" "sqlite";
        ordering = "cookbook/ordering" needs "full";
        postgres = "cookbook/postgres" needs "agents" "postgres";
        requests = "cookbook/requests" needs "full";
        search_by_meaning = "cookbook/search-by-meaning" needs "embed-local" "sqlite";
        shutdown = "cookbook/shutdown" needs "full";
        sqlite = "cookbook/sqlite" needs "sqlite";
        structured_output = "cookbook/structured-output" needs "full";
        tenants = "cookbook/tenants" needs "full";
        tests = "cookbook/tests" needs "agents" "testing";
        tools = "cookbook/tools" needs "full";
        workloads = "cookbook/workloads" needs "full";
    }
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/reference/README.md")]
pub mod reference {
    pages! {
        agents = "reference/agents" needs "full";
        guarantees = "reference/guarantees";
        limits = "reference/limits";
        security = "reference/security";
        subscriptions = "reference/subscriptions" needs "full";
        tools = "reference/tools" needs "full";
        workflows = "reference/workflows" needs "full";
        workloads = "reference/workloads" needs "full";
    }
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/operations/README.md")]
pub mod operations {
    pages! {
        backup = "operations/backup";
        log_events = "operations/log-events";
        rolling_deploys = "operations/rolling-deploys";
        scaling = "operations/scaling" needs "nats" "postgres";
        sql = "operations/sql";
    }
}
