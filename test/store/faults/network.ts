/** The networks between clients, replicas and store, of which each way can be cut by itself. */
import { freePort } from "../../kit/free-port.ts";
import { isInside, run } from "./sandbox.ts";
import { Wire } from "./wire.ts";

/** A way of one replica, to the store or to its clients. */
export interface Way {
  /** From now on nothing comes through, and nobody is told. */
  cut(): void;
  mend(): void;
}

/** A host on which a replica runs. */
export interface Host {
  /** What runs a program there. */
  readonly through: readonly string[];
  /** Where a replica listens. */
  readonly listen: { readonly host: string; readonly port: number };
  /** `host:port` by which its clients reach it. */
  readonly address: string;
  /** `host:port` by which it reaches the store. */
  readonly storeAddress: string;
  readonly store: Way;
  readonly clients: Way;
}

/** Hosts with a network to the store and another to their clients. */
export interface Network {
  /** The address of this process in the network of the clients. */
  readonly address: string;
  /** The wire by which all of the replicas reach the store: to be slowed down, or led elsewhere. */
  readonly storeWire: Wire;
  readonly hosts: readonly Host[];
}

interface Teardown {
  teardown(work: () => unknown): void;
}

const GATEWAY_PORT = 8080;
/** The networks of an address each; the last number is 254 here, and the host's own there. */
const networks = { store: "10.77.1", clients: "10.77.2" };

function ip(...args: string[]): void {
  run("ip", ...args);
}

function makeWay(number: number, name: "store" | "clients", namespace: string): Way {
  const port = `${name}${number}`;
  const inside = ["-n", namespace];
  ip("link", "add", port, "type", "veth", "peer", "name", name, "netns", namespace);
  ip(...inside, "addr", "add", `${networks[name]}.${number}/24`, "dev", name);
  ip(...inside, "link", "set", name, "up");
  ip("link", "set", port, "master", name, "up");
  return {
    // Both ends stay up, so that nobody notices.
    cut: () => ip("link", "set", port, "nomaster"),
    mend: () => ip("link", "set", port, "master", name),
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
    store: makeWay(number, "store", namespace),
    clients: makeWay(number, "clients", namespace),
  };
}

/** Each host is a network namespace, with a pair of virtual interfaces for each of its networks. */
async function makeNamespaces(t: Teardown, count: number, storePort: number): Promise<Network> {
  for (const [name, prefix] of Object.entries(networks)) {
    ip("link", "add", name, "type", "bridge");
    ip("addr", "add", `${prefix}.254/24`, "dev", name);
    ip("link", "set", name, "up");
  }
  const storeWire = await Wire.to(t, storePort, { host: `${networks.store}.254` });
  const hosts = Array.from({ length: count }, (_, at) => makeHost(at + 1, storeWire.port));
  return { address: `${networks.clients}.254`, storeWire, hosts };
}

/** Without the right to make namespaces each way leads through a relay that can stop relaying. */
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

/** Lays networks for so many replicas, over a store at a port of this machine. */
export function makeNetwork(t: Teardown, count: number, storePort: number): Promise<Network> {
  return (isInside() ? makeNamespaces : makeWires)(t, count, storePort);
}
