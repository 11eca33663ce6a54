export interface UpstreamTarget {
  /** Scheme, host and port. `http://localhost` for a Unix socket. */
  readonly origin: string;
  readonly socketPath: string | undefined;
}

export function targetName({ origin, socketPath }: UpstreamTarget): string {
  return socketPath === undefined ? origin : `unix:${socketPath}`;
}

/** Parses `http://host:port`, `https://host:port` or `unix:/path`. */
export function parseTarget(url: string): UpstreamTarget {
  if (url.startsWith("unix:")) {
    return { origin: "http://localhost", socketPath: url.slice("unix:".length) };
  }
  return { origin: new URL(url).origin, socketPath: undefined };
}

/** The host is without the brackets of an IPv6 address. */
export function hostAndPort(origin: string): { host: string; port: number } {
  const { hostname, port, protocol } = new URL(origin);
  return {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port: Number(port) || (protocol === "https:" ? 443 : 80),
  };
}
