"""What pages are made of: the frame, tables, dialogs, actions with their rights."""
