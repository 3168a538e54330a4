//! The engine against a slow, obvious reference, and the reference against itself.

mod edges;
mod engine;
mod equal;
mod generate;
mod keys;
mod reference;
mod rules;
mod simulated;
mod slices;
mod statistics;
mod trains;
