import type { IncomingMessage } from "node:http";
import { BlockList, isIP, isIPv6, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { LoginOrigin } from "../identity/throttle.ts";
import { memoize } from "../memoize.ts";

/** The origin of a request, as far as it can be trusted. */
export interface Peer {
  readonly address: string;
  readonly proto: string;
  readonly host: string | undefined;
  /** The value of `X-Forwarded-For` sent upstream. */
  readonly forwardedFor: string;
  readonly requestId: string | undefined;
  readonly isTrusted: boolean;
  /**
   * True for a loopback peer that sends forwarding headers but is not trusted, which suggests a
   * misconfigured proxy.
   */
  readonly isUntrustedProxy: boolean;
}

export type PeerReader = (request: IncomingMessage) => Peer;

const REQUEST_ID = /^[A-Za-z0-9._~+/=:-]{1,128}$/;
const forwardingHeaders = ["x-forwarded-for", "forwarded", "x-real-ip"];

function blockList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", prefix] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}

function contains(list: BlockList, address: string): boolean {
  return isIP(address) !== 0 && list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
}

/** Shows an IPv4 address as IPv4 even if a dual-stack socket reports it as IPv6. */
function plainAddress(address: string | undefined): string {
  return (address ?? "").replace(/^::ffff:(?=\d+\.)/, "");
}

export function addressOf(socket: Duplex): string {
  return socket instanceof Socket ? plainAddress(socket.remoteAddress) : "";
}

/** Some proxies write the address in a forwarding header with its port. */
function hopAddress(hop: string): string {
  const written = hop.trim();
  const [, bracketed, plain] =
    /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::\d{1,5})?$/.exec(written) ?? [];
  return plainAddress(bracketed ?? plain ?? written);
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}

/** The last address in the list that is not a trusted proxy reported by another trusted proxy. */
function clientAddress(
  isTrusted: (address: string) => boolean,
  hops: readonly string[],
  peer: string,
): string {
  for (const hop of hops.toReversed()) {
    if (isIP(hop) === 0) return peer;
    if (!isTrusted(hop)) return hop;
  }
  return hops[0] ?? peer;
}

const loopback = blockList(["127.0.0.0/8", "::1"]);

export const isLoopbackAddress = memoize((address) => contains(loopback, address), 64);

function memberOf(ranges: readonly string[]): (address: string) => boolean {
  if (ranges.length === 0) return () => false;
  const list = blockList(ranges);
  return memoize((address) => contains(list, address));
}

/**
 * Creates a reader that trusts forwarding headers only from `trustedProxies` (CIDRs).
 *
 * @param scheme the protocol of the connections themselves
 */
export function createPeerReader(
  trustedProxies: readonly string[],
  scheme: "http" | "https",
): PeerReader {
  const isTrusted = memberOf(trustedProxies);
  return ({ socket, headers }) => {
    const peer = addressOf(socket);
    if (!isTrusted(peer)) {
      return {
        address: peer,
        proto: scheme,
        host: headers.host,
        forwardedFor: peer,
        requestId: undefined,
        isTrusted: false,
        isUntrustedProxy:
          forwardingHeaders.some((name) => headers[name] !== undefined) && isLoopbackAddress(peer),
      };
    }
    const forwardedFor = single(headers["x-forwarded-for"]);
    const hops = (forwardedFor ?? "").split(",").map(hopAddress).filter(Boolean);
    const requestId = single(headers["x-request-id"]);
    return {
      address: clientAddress(isTrusted, hops, peer),
      proto: (single(headers["x-forwarded-proto"]) ?? scheme) === "https" ? "https" : "http",
      host: single(headers["x-forwarded-host"]) ?? headers.host,
      forwardedFor: forwardedFor === undefined ? peer : `${forwardedFor}, ${peer}`,
      requestId: requestId !== undefined && REQUEST_ID.test(requestId) ? requestId : undefined,
      isTrusted: true,
      isUntrustedProxy: false,
    };
  };
}

const disconnects = new WeakMap<Socket, AbortSignal>();

/** Aborts when the connection closes. All requests of a connection share one signal. */
function disconnectOf(socket: Socket): AbortSignal {
  const known = disconnects.get(socket);
  if (known !== undefined) return known;
  const controller = new AbortController();
  disconnects.set(socket, controller.signal);
  if (socket.destroyed) controller.abort();
  else socket.once("close", () => controller.abort());
  return controller.signal;
}

export function loginOrigin(
  { address, isUntrustedProxy }: Peer,
  { socket }: IncomingMessage,
): LoginOrigin {
  return { address, isShared: isUntrustedProxy, signal: disconnectOf(socket) };
}
