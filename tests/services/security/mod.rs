//! Attacks on the PostgreSQL store and on events through NATS.

mod nats;
mod postgres;
#[path = "../../support/tenants.rs"]
mod tenants;

use crate::postgres::Server;

#[tokio::test]
async fn tenants_with_odd_names_are_apart_in_postgres() {
    tenants::are_apart(&Server::default()).await;
}
