mod code;
mod kernels;
mod link;
mod receiver;
mod sizes;
