import type { IncomingMessage } from "node:http";
import { BlockList, isIP, isIPv6, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { LoginOrigin } from "../identity/throttle.ts";
import { memoize } from "../memoize.ts";

/** Where a request comes from, as far as it can be believed. */
export interface Peer {
  /** The client's address: the peer's own, or what a trusted proxy says. */
  readonly address: string;
  /** `http` or `https`, as the client saw it. */
  readonly proto: string;
  /** The host that the client asked for. */
  readonly host: string | undefined;
  /** The value of `X-Forwarded-For` that goes up. */
  readonly forwardedFor: string;
  /** A request id that a trusted proxy gave. */
  readonly requestId: string | undefined;
  readonly isTrusted: boolean;
  /** A loopback peer that forwards for others without being trusted: a proxy set up halfway. */
  readonly isUntrustedProxy: boolean;
}

/** Finds out where a request comes from. */
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

/** An IPv4 address that a dual-stack socket shows as IPv6 is shown as what it is. */
function plainAddress(address: string | undefined): string {
  return (address ?? "").replace(/^::ffff:(?=\d+\.)/, "");
}

/** The address of who is connected. */
export function addressOf(socket: Duplex): string {
  return socket instanceof Socket ? plainAddress(socket.remoteAddress) : "";
}

/** An address in a forwarding header, which some proxies write with its port. */
function hopAddress(hop: string): string {
  const written = hop.trim();
  const [, bracketed, plain] =
    /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::\d{1,5})?$/.exec(written) ?? [];
  return plainAddress(bracketed ?? plain ?? written);
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}

/** The last address in the list that no trusted proxy wrote about another trusted proxy. */
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

/** True for an address of this machine itself. */
export const isLoopbackAddress = memoize((address) => contains(loopback, address), 64);

/** Tells whether an address is in one of the networks. */
function memberOf(ranges: readonly string[]): (address: string) => boolean {
  if (ranges.length === 0) return () => false;
  const list = blockList(ranges);
  return memoize((address) => contains(list, address));
}

/**
 * Makes a reader that believes forwarding headers of `trustedProxies` (CIDRs) alone.
 *
 * @param scheme what is spoken on the connections themselves
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

/** Aborted when the connection has closed; one signal for each, however many requests it brings. */
function disconnectOf(socket: Socket): AbortSignal {
  const known = disconnects.get(socket);
  if (known !== undefined) return known;
  const controller = new AbortController();
  disconnects.set(socket, controller.signal);
  if (socket.destroyed) controller.abort();
  else socket.once("close", () => controller.abort());
  return controller.signal;
}

/** Where a login comes from, for the throttle and the queue of hashes. */
export function loginOrigin(
  { address, isUntrustedProxy }: Peer,
  { socket }: IncomingMessage,
): LoginOrigin {
  return { address, isShared: isUntrustedProxy, signal: disconnectOf(socket) };
}
