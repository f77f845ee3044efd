"""What one reconcile knows, decides and has done. The functions are pure."""
