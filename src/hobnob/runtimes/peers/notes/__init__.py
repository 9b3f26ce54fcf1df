"""What one member keeps of the others: its links, what they know, who came and went."""
