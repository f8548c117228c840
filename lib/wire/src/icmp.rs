//! The message format that ICMP for IPv4 (RFC 792) and for IPv6 (RFC 4443) share.
//!
//! The checksums differ: ICMPv6 covers a pseudo-header. Each version's module has its own types, codes and checksum.

/// Bytes of the header that all messages share: type, code, checksum, four bytes of the type's own.
pub const HEADER_LEN: usize = 8;

pub(crate) mod field {
    use core::ops::Range;
    pub(crate) const TYPE: usize = 0;
    pub(crate) const CODE: usize = 1;
    pub(crate) const CHECKSUM: Range<usize> = 2..4;
    pub(crate) const REST: Range<usize> = 4..8;
    pub(crate) const ECHO_IDENT: Range<usize> = 4..6;
    pub(crate) const ECHO_SEQUENCE: Range<usize> = 6..8;
}

/// Declares the view `$packet` of messages of type `$msg_type`, with all accessors that both versions share.
/// `$truncated`: the error for a message below [`HEADER_LEN`].
macro_rules! message_view {
    ($(#[$doc:meta])* $packet:ident, $msg_type:ident, $truncated:ident) => {
        $crate::view::view! {
            $(#[$doc])*
            $packet
        }

        impl<T: AsRef<[u8]>> $packet<T> {
            /// # Errors
            #[doc = concat!("[`ParseError::", stringify!($truncated), "`](crate::ParseError::", stringify!($truncated), ") below 8 bytes.")]
            #[inline]
            pub fn check(&self) -> Result<(), $crate::ParseError> {
                if self.data().len() < HEADER_LEN {
                    Err($crate::ParseError::$truncated)
                } else {
                    Ok(())
                }
            }

            /// Message type.
            #[inline]
            pub fn msg_type(&self) -> $msg_type {
                $msg_type(self.data()[$crate::icmp::field::TYPE])
            }

            /// Message code.
            #[inline]
            pub fn code(&self) -> u8 {
                self.data()[$crate::icmp::field::CODE]
            }

            /// Checksum as it stands in the message.
            #[inline]
            pub fn checksum(&self) -> u16 {
                $crate::be::get_u16(self.data(), $crate::icmp::field::CHECKSUM)
            }

            /// The four bytes whose meaning depends on the type.
            #[inline]
            pub fn rest(&self) -> [u8; 4] {
                $crate::be::get_array(self.data(), $crate::icmp::field::REST)
            }

            #[doc = concat!("Identifier of a query or its reply; see [`", stringify!($msg_type), "::has_ident`].")]
            #[inline]
            pub fn echo_ident(&self) -> u16 {
                $crate::be::get_u16(self.data(), $crate::icmp::field::ECHO_IDENT)
            }

            /// Sequence number of a query or its reply.
            #[inline]
            pub fn echo_sequence(&self) -> u16 {
                $crate::be::get_u16(self.data(), $crate::icmp::field::ECHO_SEQUENCE)
            }

            /// Returns the bytes behind the 8 bytes: echo data, or the packet that an error quotes.
            #[inline]
            pub fn payload(&self) -> &[u8] {
                &self.data()[HEADER_LEN..]
            }
        }

        /// Setters leave the checksum as it is.
        impl<T: AsRef<[u8]> + AsMut<[u8]>> $packet<T> {
            /// Sets the message type.
            #[inline]
            pub fn set_msg_type(&mut self, msg_type: $msg_type) {
                self.buffer.as_mut()[$crate::icmp::field::TYPE] = msg_type.0;
            }

            /// Sets the message code.
            #[inline]
            pub fn set_code(&mut self, code: u8) {
                self.buffer.as_mut()[$crate::icmp::field::CODE] = code;
            }

            /// Sets the four bytes whose meaning depends on the type.
            #[inline]
            pub fn set_rest(&mut self, rest: [u8; 4]) {
                self.buffer.as_mut()[$crate::icmp::field::REST].copy_from_slice(&rest);
            }

            /// Sets the identifier of a query or its reply.
            #[inline]
            pub fn set_echo_ident(&mut self, ident: u16) {
                $crate::be::set_u16(self.buffer.as_mut(), $crate::icmp::field::ECHO_IDENT, ident);
            }

            /// Sets the checksum.
            #[inline]
            pub fn set_checksum(&mut self, checksum: u16) {
                $crate::be::set_u16(self.buffer.as_mut(), $crate::icmp::field::CHECKSUM, checksum);
            }

            /// Returns the bytes behind the 8 bytes, to be written.
            #[inline]
            pub fn payload_mut(&mut self) -> &mut [u8] {
                &mut self.buffer.as_mut()[HEADER_LEN..]
            }
        }
    };
}
pub(crate) use message_view;
