import { freePort } from "../../kit/free-port.ts";
import type { Teardown } from "../kit.ts";
import { isInside, run } from "./sandbox.ts";
import { Wire } from "./wire.ts";

/** The link of a replica to the store or to its clients. */
interface Link {
  /** Drops everything without closing connections. */
  cut(): void;
  restore(): void;
}

export interface Host {
  /** The command that runs a program on the host. */
  readonly through: readonly string[];
  readonly listen: { readonly host: string; readonly port: number };
  /** `host:port` by which its clients reach it. */
  readonly address: string;
  /** `host:port` by which it reaches the store. */
  readonly storeAddress: string;
  readonly store: Link;
  readonly clients: Link;
}

export interface Network {
  /** The address of this process in the network of the clients. */
  readonly address: string;
  /** By which all replicas reach the store. */
  readonly storeWire: Wire;
  readonly hosts: readonly Host[];
}

const GATEWAY_PORT = 8080;
/** The last number of an address is 254 for this process, and the host's number for a host. */
const networks = { store: "10.77.1", clients: "10.77.2" };

function ip(...args: string[]): void {
  run("ip", ...args);
}

function makeLink(number: number, name: "store" | "clients", namespace: string): Link {
  const port = `${name}${number}`;
  const inside = ["-n", namespace];
  ip("link", "add", port, "type", "veth", "peer", "name", name, "netns", namespace);
  ip(...inside, "addr", "add", `${networks[name]}.${number}/24`, "dev", name);
  ip(...inside, "link", "set", name, "up");
  ip("link", "set", port, "master", name, "up");
  return {
    // Both ends stay up, so that no connection is closed.
    cut: () => ip("link", "set", port, "nomaster"),
    restore: () => ip("link", "set", port, "master", name),
  };
}

function makeHost(number: number, storePort: number): Host {
  const namespace = `gateway${number}`;
  ip("netns", "add", namespace);
  ip("-n", namespace, "link", "set", "lo", "up");
  return {
    through: ["nsenter", `--net=/run/netns/${namespace}`],
    listen: { host: "0.0.0.0", port: GATEWAY_PORT },
    address: `${networks.clients}.${number}:${GATEWAY_PORT}`,
    storeAddress: `${networks.store}.254:${storePort}`,
    store: makeLink(number, "store", namespace),
    clients: makeLink(number, "clients", namespace),
  };
}

/** Each host is a network namespace with a virtual interface for each network. */
async function makeNamespaces(t: Teardown, count: number, storePort: number): Promise<Network> {
  for (const [name, prefix] of Object.entries(networks)) {
    ip("link", "add", name, "type", "bridge");
    ip("addr", "add", `${prefix}.254/24`, "dev", name);
    ip("link", "set", name, "up");
  }
  const storeWire = await Wire.to(t, storePort, `${networks.store}.254`);
  const hosts = Array.from({ length: count }, (_, at) => makeHost(at + 1, storeWire.port));
  return { address: `${networks.clients}.254`, storeWire, hosts };
}

/** Without the right to create namespaces, each link is a relay. */
async function makeWires(t: Teardown, count: number, storePort: number): Promise<Network> {
  const storeWire = await Wire.to(t, storePort);
  const hosts: Host[] = [];
  for (let at = 0; at < count; at++) {
    const port = await freePort();
    const [store, clients] = [await Wire.to(t, storeWire.port), await Wire.to(t, port)];
    const address = `127.0.0.1:${clients.port}`;
    const storeAddress = `127.0.0.1:${store.port}`;
    const listen = { host: "127.0.0.1", port };
    hosts.push({ through: [], listen, address, storeAddress, store, clients });
  }
  return { address: "127.0.0.1", storeWire, hosts };
}

export function makeNetwork(t: Teardown, count: number, storePort: number): Promise<Network> {
  return (isInside() ? makeNamespaces : makeWires)(t, count, storePort);
}
