"""What a person reads: results of operations to lines of text, pure and at a given width."""
