"""The page of a campaign: its matrix, and figures in which its runs stand beside each other."""
