//! The shape that all views share.

/// Declares a zero-copy view `struct $name<T> { buffer: T }` with its constructors.
///
/// The module then writes `check()` (all length checks, once) and the accessors.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps a buffer without looking at it: right for a buffer about to be filled, or
            /// one that has been checked before. Wrong for received bytes: accessors panic when
            /// the buffer is too short.
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Wraps a received buffer after all length checks.
            ///
            /// # Errors
            /// The reason for which `check` refuses the bytes.
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::ParseError> {
                let view = Self { buffer };
                view.check()?;
                Ok(view)
            }

            /// Gives the buffer back.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline]
            fn data(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }

        impl<T: AsRef<[u8]>> AsRef<[u8]> for $name<T> {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}
pub(crate) use view;
