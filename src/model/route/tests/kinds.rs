use super::*;

fn of_kind(kind: EventKind, version: u64) -> Event {
    Event {
        kind,
        version,
        ..request()
    }
}

#[test]
fn a_ping_matches_nothing() {
    let on_everything = [
        EventKind::Created,
        EventKind::Updated,
        EventKind::Deleted,
        EventKind::Ping,
    ];
    let subscriptions = new([
        Subscription::trigger("*").on(on_everything),
        Subscription::context("*").key("all").on(on_everything),
    ]);
    let ping: Event =
        serde_json::from_str(r#"{"type": "ping", "ts": "2026-11-21T20:33:37Z"}"#).unwrap();

    for ping in [ping, of_kind(EventKind::Ping, 1)] {
        let explained = subscriptions.explain(&ping);

        assert_eq!(subscriptions.route(&ping), Route::Unmatched);
        assert_eq!(
            explained.to_string(),
            "subscription 0, trigger: a ping matches no subscription\nsubscription 1, context \"all\": a ping matches no subscription"
        );
    }
}

#[test]
fn a_deletion_matches_only_subscriptions_to_deletions() {
    let deleted = of_kind(EventKind::Deleted, 3);
    let asks = |subscription: Subscription| new([subscription.on([EventKind::Deleted])]);
    let silent = new([
        Subscription::trigger("*"),
        Subscription::context("*").key("all"),
    ]);

    assert_eq!(silent.route(&deleted), Route::Unmatched);
    assert_eq!(asks(Subscription::trigger("*")).route(&deleted), TRIGGER_0);
    assert_eq!(
        asks(Subscription::context("*").key("all")).route(&deleted),
        Route::Context
    );
    assert_eq!(
        asks(Subscription::trigger("*")).route(&request()),
        Route::Unmatched
    );
}

#[test]
fn a_deletion_without_a_context_is_decided_like_any_other_event() {
    let deleted = Event {
        context: None,
        ..of_kind(EventKind::Deleted, 3)
    };
    let trigger = Subscription::trigger("*").matching("tool", "eq", "adder");

    assert_eq!(new([trigger.clone()]).route(&deleted), Route::Unmatched);
    assert_eq!(
        new([trigger.on([EventKind::Deleted])]).route(&deleted),
        Route::NeedsContext
    );
}

#[test]
fn version_1_is_a_creation_for_any_event_kind_on_the_wire() {
    let created = new([Subscription::trigger("*").on([EventKind::Created])]);
    let updated = new([Subscription::trigger("*").on([EventKind::Updated])]);

    for (kind, version, is_created) in [
        (EventKind::Created, 1, true),
        (EventKind::Updated, 1, true),
        (EventKind::Updated, 2, false),
        (EventKind::Created, 2, false),
    ] {
        let event = of_kind(kind, version);
        let (yes, no) = if is_created {
            (&created, &updated)
        } else {
            (&updated, &created)
        };

        assert_eq!(yes.route(&event), TRIGGER_0, "{kind:?} {version}");
        assert_eq!(no.route(&event), Route::Unmatched, "{kind:?} {version}");
    }
}

#[test]
fn creations_and_updates_match_by_default() {
    let subscriptions = new([Subscription::trigger("*")]);

    for event in [
        of_kind(EventKind::Created, 1),
        of_kind(EventKind::Updated, 1),
        of_kind(EventKind::Updated, 7),
    ] {
        assert_eq!(subscriptions.route(&event), TRIGGER_0);
    }
}
