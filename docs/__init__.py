"""The pages of the project, and what writes the generated ones."""
