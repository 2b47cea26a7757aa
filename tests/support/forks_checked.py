"""What a server of forks imports last: it makes sure that the server may fork."""

import forks_alone

forks_alone.check()
