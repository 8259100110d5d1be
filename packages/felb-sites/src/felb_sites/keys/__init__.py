"""Who is who: keys, invitations, requests to join, and the signed list of members."""
