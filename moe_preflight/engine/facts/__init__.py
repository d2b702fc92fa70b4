"""What engine releases do, as data: each table says where it was read. No rule lives here."""
