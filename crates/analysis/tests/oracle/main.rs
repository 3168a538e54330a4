//! The engine against a slow, obvious reference, and the reference against itself.

mod generate;
mod reference;
mod rules;
