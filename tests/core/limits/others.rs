//! Constants and capacities that docs/reference/limits.md does not list, each with a reason.

/// The reasons, each with the constants to which it applies.
pub(super) const CONSTANTS: &[(&str, &[&str])] = &[
    (
        "the shape and the cost of one JSONPath",
        &[
            "src/model/path/admission.rs MAX_BYTES",
            "src/model/path/admission.rs MAX_DESCENTS",
            "src/model/path/admission.rs MAX_MEMBERS",
            "src/model/path/admission.rs MAX_PARENTHESES",
            "src/model/path/admission.rs MAX_SEGMENTS",
            "src/model/path/admission.rs MAX_SPREADS",
            "src/model/path/cost.rs MAX_SEARCH_STEPS",
            "src/model/path/document.rs MAX_DEPTH",
            "src/model/path/document.rs MAX_LOCATION_BYTES",
            "src/model/path/plain.rs MAX_INDEX",
            "src/model/path/typing.rs MAX_PATH_COMPARISONS",
        ],
    ),
    (
        "the shape and the cost of one template, schema or definition",
        &[
            "src/agent/model/part.rs MAX_DEPTH",
            "src/hints/mod.rs MAX_STEPS",
            "src/hints/template/admission.rs MAX_BACKSLASHES",
            "src/hints/template/admission.rs MAX_BLOCKS",
            "src/hints/template/admission.rs MAX_PARENTHESES",
            "src/mcp/listed.rs MAX_SCHEMA_DEPTH",
            "src/request/human.rs MAX_CHANGED_DEPTH",
            "src/tool/schema/admission.rs MAX_LEVELS",
            "src/tool/schema/work.rs MAX_LEVELS",
            "src/tool/schema/work.rs MAX_STEPS",
            "src/workflow/definition/yaml.rs MAX_LEVELS",
        ],
    ),
    (
        "the length of one name, ID or path",
        &[
            "src/agent/fallback/builder.rs MAX_NAME_BYTES",
            "src/agent/providers/cli/wire.rs MAX_NAME_BYTES",
            "src/mcp/server.rs MAX_NAME_LENGTH",
            "src/mcp/service/call.rs MAX_KEY_BYTES",
            "src/agent/providers/completions/names.rs MAX_BYTES",
            "src/agent/requests.rs MAX_ID_BYTES",
            "src/agent/turns/spent.rs MAX_NAME_BYTES",
            "src/client/session/mod.rs MAX_ID_BYTES",
            "src/executor/check.rs MAX_ID_BYTES",
            "src/executor/ordering.rs MAX_KEY_BYTES",
            "src/executor/provenance.rs MAX_CORRELATION_CHARS",
            "src/source/nats/subject.rs LONGEST_SCHEMA",
            "src/source/nats/subject.rs LONGEST_TENANT",
            "src/store/commit.rs LONGEST",
            "src/store/sqlite/sockets/unix.rs LONGEST",
            "src/workload/manager/ident.rs MAX_BYTES",
            "src/workload/supervisor/mod.rs LONGEST_SESSION",
        ],
    ),
    (
        "the length of one message, or the number of names in it",
        &[
            "src/agent/providers/cli/wire.rs MAX_PROBLEM_BYTES",
            "src/agent/providers/completions/answer.rs MAX_REFUSAL",
            "src/agent/recorded.rs MAX_SHOWN",
            "src/error/chain.rs MAX_LINE_BYTES",
            "src/executor/finalize.rs MAX_INHERITED_TAGS",
            "src/executor/finalize.rs MAX_INHERITED_TAG_BYTES",
            "src/executor/for_model/shape.rs MAX_CACHED_HINTS",
            "src/executor/for_model/shape.rs MAX_CAUSES",
            "src/http.rs MAX_BYTES",
            "src/model/fields.rs LONGEST",
            "src/model/nearest.rs LONGEST",
            "src/runtime/definitions/loader.rs MAX_REASON_LENGTH",
            "src/store/rcrt/http.rs MAX_MESSAGE",
            "src/workload/manager/mod.rs MAX_SIMILAR",
        ],
    ),
    (
        "a number of attempts or delays, without a collection",
        &[
            "src/agent/breadcrumb_model.rs MAX_FAILURES",
            "src/agent/turns/progress.rs MAX_REPAIRS",
            "src/machine/policy.rs Policy.reminders",
            "src/runtime/quota.rs MAX_POSTPONED",
        ],
    ),
    (
        "a limit of the testing kit, which services do not run",
        &[
            "src/testing/error.rs MAX_RUNS",
            "src/testing/idle.rs MAX_STORE_CALLS",
            "src/testing/recorded.rs MOST",
        ],
    ),
    (
        "the work until other tasks have their turn",
        &[
            "src/executor/for_model/shape.rs MAX_STEPS_PER_YIELD",
            "src/store/memory/vectors.rs AT_ONCE",
        ],
    ),
    (
        "how many parts of one entry are indexed; the others are compared",
        &[
            "src/model/index/selectors.rs MAX_ALTERNATIVES",
            "src/model/index/tree.rs MAX_REQUIRED",
        ],
    ),
    (
        "the size of one statement or query, which then has another form or a next page",
        &[
            "src/client/cancel.rs MAX_SEARCHED",
            "src/store/postgres/begin.rs MOST",
            "src/store/postgres/statement.rs MOST",
            "src/store/postgres/vector_search.rs MOST",
            "src/store/rcrt/filter.rs MOST_ANY",
            "src/store/rcrt/search.rs MAX_TEXT",
            "src/store/run_page.rs DEFAULT_LIMIT",
            "src/store/schema_hints.rs AT_ONCE",
            "src/store/sqlite/search.rs MOST",
            "src/tool/catalog.rs MAX_CATALOGS",
            "src/workflow/drive/pinned_definitions.rs MAX_PAGE_SIZE",
            "src/workflow/drive/pinned_definitions.rs MAX_QUERIES",
        ],
    ),
    (
        "a bound of a number that PostgreSQL or pgvector can represent",
        &[
            "src/store/postgres/pgvector.rs MOST_DIMENSIONS",
            "src/store/postgres/row.rs MOST",
        ],
    ),
    (
        "the default of a field of DefinitionOptions, which is listed",
        &[
            "src/model/definition.rs MAX_CONDITIONS",
            "src/model/definition.rs MAX_REGEXES",
        ],
    ),
    (
        "no limit until a search of a path begins",
        &["src/hints/budget.rs Budget.search"],
    ),
];

/// Capacities that are not constants: the file, the argument, and the table row with the value.
pub(super) const CAPACITIES: &[(&str, &str, &str)] = &[
    (
        "src/agent/providers/cli/callbacks.rs",
        "MAX_CALLS",
        "src/agent/providers/cli/refusal.rs MAX_CALLS",
    ),
    (
        "src/agent/providers/cli/service.rs",
        "MAX_CALLS",
        "src/agent/providers/cli/refusal.rs MAX_CALLS",
    ),
    (
        "src/mcp/service/mod.rs",
        "permits(DEFAULT_MAX_CALLS)",
        "src/mcp/service/mod.rs DEFAULT_MAX_CALLS",
    ),
    (
        "src/mcp/service/mod.rs",
        "permits(calls)",
        "src/mcp/service/mod.rs DEFAULT_MAX_CALLS",
    ),
    (
        "src/runtime/ack_tracker.rs",
        "max_deliveries",
        "src/runtime/settings.rs Settings.max_deliveries",
    ),
    (
        "src/runtime/intake.rs",
        "self.runtime.settings.max_deliveries",
        "src/runtime/settings.rs Settings.max_deliveries",
    ),
    (
        "src/runtime/shared.rs",
        "settings.concurrency.min(Semaphore::MAX_PERMITS)",
        "src/runtime/settings.rs Settings.concurrency",
    ),
    (
        "src/source/sse/feed.rs",
        "buffer",
        "src/source/sse/builder.rs SseSourceBuilder.buffer",
    ),
    (
        "src/store/postgres/connections.rs",
        "settings.connections as usize",
        "src/store/postgres/builder.rs Settings.connections",
    ),
    (
        "src/store/rcrt/http.rs",
        "concurrency",
        "src/store/rcrt/builder.rs RcrtBuilder.concurrency",
    ),
    (
        "src/store/sqlite/readers.rs",
        "capacity",
        "src/store/sqlite/database.rs WAITING",
    ),
    (
        "src/tool/entry.rs",
        "permits",
        "src/tool/settings.rs ToolSettings.max_concurrent",
    ),
    (
        "src/tool/pool/mod.rs",
        "slots",
        "src/tool/pool/mod.rs shared",
    ),
    (
        "src/workload/supervisor/session_queue.rs",
        "capacity",
        "src/workload/supervisor/settings.rs Settings.buffer",
    ),
    (
        "src/workload/supervisor/session_queue.rs",
        "settings.concurrency.clamp(1, Semaphore::MAX_PERMITS)",
        "src/workload/supervisor/settings.rs Settings.concurrency",
    ),
];
