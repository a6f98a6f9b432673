//! What one event costs from arrival to response.

fn main() {}
