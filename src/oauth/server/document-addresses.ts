import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";

/** True for an address that a document may be fetched from. */
export type AddressRule = (address: string) => boolean;

/** The only IPv6 addresses that are given out to the public (RFC 4291, section 2.4). */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/** True for an address of the public internet: none that is private, local or reserved. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast") return false;
  return parsed.kind() === "ipv4" || parsed.match(globalUnicast);
}

const privateRanges: ReadonlySet<string> = new Set([
  "loopback",
  "private",
  "uniqueLocal",
  "carrierGradeNat",
]);

/**
 * True for an address that a host in an operator's own network has. Those of a link alone are not
 * among them: where machines are rented, they hand out credentials.
 */
export function isNetworkAddress(address: string): boolean {
  if (isPublicAddress(address)) return true;
  return ipaddr.isValid(address) && privateRanges.has(ipaddr.process(address).range());
}

/** All addresses of a name, as the system resolves it. */
export type ResolveAll = (
  hostname: string,
  done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** Asks the system. */
export function resolveAll(hostname: string, done: Parameters<ResolveAll>[1]): void {
  systemLookup(hostname, { all: true }, done);
}

/**
 * A lookup that gives only addresses that the rule allows, or none. The socket is opened to what it
 * gives, so that the address that was checked is the one that is used.
 */
export function guardedLookup(isAllowed: AddressRule, resolve: ResolveAll): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) {
        done(error ?? new Error("the host has no address"), "", 0);
      } else if (!addresses.every(({ address }) => isAllowed(address))) {
        done(new Error("the host has an address that is not public"), "", 0);
      } else if (options.all === true) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

/** Checks a host that is an address itself, which nothing looks up. @throws Error */
export function requireAllowedLiteral(hostname: string, isAllowed: AddressRule): void {
  const literal = hostname.replace(/^\[|\]$/g, "");
  if (isIP(literal) !== 0 && !isAllowed(literal)) throw new Error("the address is not public");
}
