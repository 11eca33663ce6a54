import { networkInterfaces } from "node:os";

const everywhere = new Map([
  ["0.0.0.0", ["IPv4"]],
  ["[::]", ["IPv4", "IPv6"]],
]);

/** Addresses of one link alone can be opened only with the name of that link. */
const linkLocal = /^fe[89ab]/i;

/** The URLs at which what listens at `url` can be opened, this machine's own first. */
export function openable(url: string): string[] {
  const { hostname, port, protocol } = new URL(url);
  const families = everywhere.get(hostname);
  if (families === undefined) return [url];
  const found = Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .filter(({ family, address }) => families.includes(family) && !linkLocal.test(address))
    .toSorted((one, other) => Number(other.internal) - Number(one.internal));
  const urls = found.map(({ family, address }) => {
    const host = family === "IPv6" ? `[${address}]` : address;
    return `${protocol}//${host}${port === "" ? "" : `:${port}`}`;
  });
  return urls.length === 0 ? [url] : urls;
}
