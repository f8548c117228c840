mod assembly;
mod function;
mod graphs;
mod guide;
