"""From what is known to rows of text and tones: pure."""
