//! An interface or a ring port behind one type. The choice is made once per batch, not per frame.

use std::time::Duration;

use super::{EndpointArgs, PortSource};
use crate::interface::{self, InterfaceReceiver, InterfaceSender};
use crate::io::{IoError, Receiver, Sender};

/// A value of one of two kinds.
#[derive(Debug)]
pub enum Either<I, P> {
    /// On a network interface.
    Interface(I),
    /// On a ring port.
    Port(P),
}

impl<I: Sender, P: Sender> Sender for Either<I, P> {
    fn send(
        &mut self,
        count: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        match self {
            Either::Interface(sender) => sender.send(count, fill),
            Either::Port(sender) => sender.send(count, fill),
        }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        match self {
            Either::Interface(sender) => sender.flush(),
            Either::Port(sender) => sender.flush(),
        }
    }

    fn prefill(&mut self, write: impl FnMut(&mut [u8])) -> bool {
        match self {
            Either::Interface(sender) => sender.prefill(write),
            Either::Port(sender) => sender.prefill(write),
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Either::Interface(sender) => sender.dropped(),
            Either::Port(sender) => sender.dropped(),
        }
    }
}

impl<I: Receiver, P: Receiver> Receiver for Either<I, P> {
    fn receive(&mut self, max: usize, handle: impl FnMut(&[u8])) -> Result<usize, IoError> {
        match self {
            Either::Interface(receiver) => receiver.receive(max, handle),
            Either::Port(receiver) => receiver.receive(max, handle),
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        match self {
            Either::Interface(receiver) => receiver.wait(timeout),
            Either::Port(receiver) => receiver.wait(timeout),
        }
    }
}

type Halves<S> = (
    Either<InterfaceSender, <S as PortSource>::Sender>,
    Either<InterfaceReceiver, <S as PortSource>::Receiver>,
);

impl EndpointArgs {
    /// Opens both halves.
    pub(super) fn open<S: PortSource>(&self, ports: &mut S) -> Result<Halves<S>, IoError> {
        match (&self.interface, &self.port) {
            (Some(name), _) => {
                let (sender, receiver) = interface::open(name)?;
                Ok((Either::Interface(sender), Either::Interface(receiver)))
            }
            (None, port) => {
                let (sender, receiver) = ports.open(port.as_deref().unwrap_or_default())?;
                Ok((Either::Port(sender), Either::Port(receiver)))
            }
        }
    }

    /// Opens a port for sending; on an interface no frames are queued for a receiver that is never read.
    pub(super) fn open_sender<S: PortSource>(
        &self,
        ports: &mut S,
    ) -> Result<Either<InterfaceSender, S::Sender>, IoError> {
        match &self.interface {
            Some(name) => InterfaceSender::open(name).map(Either::Interface),
            None => self.open(ports).map(|halves| halves.0),
        }
    }

    /// Opens for receiving.
    pub(super) fn open_receiver<S: PortSource>(
        &self,
        ports: &mut S,
    ) -> Result<Either<InterfaceReceiver, S::Receiver>, IoError> {
        match &self.interface {
            Some(name) => InterfaceReceiver::open(name).map(Either::Interface),
            None => self.open(ports).map(|halves| halves.1),
        }
    }
}
