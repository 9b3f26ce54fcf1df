"""Where agents live, and how their messages travel."""
