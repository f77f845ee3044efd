"""Model repositories, good ones and faulty ones, on which the check and the real server are held against each other."""
