"""What tests of several kinds share: real parts to test against."""
