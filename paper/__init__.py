"""The paper's tables and figures, each as a declaration: what is run for it, and what is made of the records."""
