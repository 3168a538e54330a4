//! Prints the JSON Schema of what `tailscope-dp` says: `schema.json`.

fn main() {
    print!("{}", messages::schema());
}
