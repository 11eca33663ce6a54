/** Addresses as the configuration spells them: hosts, listeners, proxies. */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Where a listener binds. */
export interface ListenAddress {
  readonly host: string;
  /** From 0, any free port, to 65535. */
  readonly port: number;
}

const HIGHEST_PORT = 65535;
const hostName =
  /^(?=.{1,253}$)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;

/** True for an IP address (IPv6 without brackets or zone) or a host name (RFC 1123, section 2.1). */
export function isHost(text: string): boolean {
  return isAddress(text) || (hostName.test(text) && !isNumeric(lastLabel(text)));
}

/**
 * True if nothing but this machine can connect to `host`: `localhost`, 127.0.0.0/8, ::1. Every
 * other name is taken for a public one, since what it resolves to may change.
 */
export function isLoopback(host: string): boolean {
  if (host.toLowerCase() === "localhost") return true;
  return isAddress(host) && ipaddr.process(host).range() === "loopback";
}

/** True if `host` stands for every address of this machine: `0.0.0.0`, `::`. */
export function isUnspecified(host: string): boolean {
  return isAddress(host) && ipaddr.process(host).range() === "unspecified";
}

/** True for a plain IP address or a network such as `10.0.0.0/8`. */
export function isAddressOrNetwork(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  if (rest.length > 0 || !isAddress(address)) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && ipaddr.isValidCIDR(text));
}

/**
 * Reads `host:port`, an IPv6 host in brackets.
 * @returns undefined if `text` is anything else
 */
export function parseListenAddress(text: string): ListenAddress | undefined {
  const match = /^(?:\[(?<bracketed>[^\]]*)\]|(?<plain>[^:]*)):(?<digits>\d{1,5})$/.exec(text);
  const { bracketed, plain = "", digits } = match?.groups ?? {};
  const port = Number(digits);
  if (digits === undefined || port > HIGHEST_PORT) return undefined;
  if (bracketed !== undefined) {
    return isIP(bracketed) === 6 && isAddress(bracketed) ? { host: bracketed, port } : undefined;
  }
  return isHost(plain) ? { host: plain, port } : undefined;
}

/** `node:net` decides, since `ipaddr.js` also reads `127.1` and `0x7f.0.0.1`. */
function isAddress(text: string): boolean {
  return isIP(text) !== 0 && !text.includes("%");
}

/** A name that ends in a number is an IPv4 address to URL parsers (WHATWG URL, section 3.5). */
function isNumeric(label: string): boolean {
  return /^(?:\d+|0[xX][0-9A-Fa-f]*)$/.test(label);
}

function lastLabel(host: string): string {
  return host.slice(host.lastIndexOf(".") + 1);
}
