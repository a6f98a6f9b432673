//! A runtime that follows definitions in its store, its health and its graph.

mod configured;
mod downtime;
mod following;
mod given;
mod graph;
mod health;
mod refused;
mod traffic;
mod warned;
mod workers;
