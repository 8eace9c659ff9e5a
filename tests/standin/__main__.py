"""`python -m tests.standin`: the stand-in by itself; prints its port and serves until ^C."""

import argparse

from tests.standin.server import StandIn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--log", required=True, help="a JSON line for each request")
    args = parser.parse_args()
    server = StandIn(args.log, port=args.port, delay=args.delay)
    print(server.server_address[1], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.stopped.set()


if __name__ == "__main__":
    main()
