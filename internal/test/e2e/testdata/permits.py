"""Clients of permits, as threads: python3 permits.py DESTINATION API CLIENTS"""

import sys
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tidegate import PermitRefused, Tidegate

destination, api, clients = sys.argv[1], sys.argv[2], int(sys.argv[3])
tidegate = Tidegate()


def work():
    while True:
        try:
            with tidegate.permit(destination, wait=30, lease=5) as permit:
                try:
                    with urlopen(Request(api + "/python", b"{}", method="POST"), timeout=5) as response:
                        permit.response(response.status, response.headers)
                except HTTPError as refused:
                    permit.response(refused.code, refused.headers)
        except PermitRefused:
            pass


threads = [threading.Thread(target=work) for _ in range(clients)]
for one in threads:
    one.start()
