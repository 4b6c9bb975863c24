//! Where the handlers hang: one file for each form of hook, nothing but one-line twins in it.

mod tracepoint;
