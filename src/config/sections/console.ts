import { z } from "zod";
import { isLoopback, parseListenAddress } from "../addresses.ts";
import { listenAddress, publicUrl, refuse } from "../kinds.ts";

/** True if nothing but this machine can be meant by the URL. */
function isLoopbackUrl(url: string): boolean {
  return isLoopback(new URL(url).hostname.replace(/^\[|\]$/g, ""));
}

/** `[console]`: the pages for operators and users, on a listener of their own. */
export const consolePages = z
  .strictObject({
    listen: listenAddress()
      .optional()
      .meta({
        description:
          "Where the console's pages are served, on a listener and an origin of their own; absent: no console.",
        examples: ["127.0.0.1:8081"],
      }),
    public_url: publicUrl()
      .default("")
      .meta({
        description:
          "How browsers reach the console, behind a TLS front; empty: http:// on the port of listen, from this machine alone.",
        examples: ["https://console.example.com"],
      }),
  })
  .superRefine(({ listen, public_url: url }, context) => {
    if (url.startsWith("http:") && !isLoopbackUrl(url)) {
      const allowed = "an https:// URL, or one of a loopback address, since passwords go over it";
      refuse(context, ["public_url"], allowed);
    }
    const address = listen === undefined ? undefined : parseListenAddress(listen);
    if (address === undefined || isLoopback(address.host) || url.startsWith("https:")) return;
    const allowed =
      "a loopback address, or console.public_url with https://, since passwords go over it";
    refuse(context, ["listen"], allowed);
  })
  .prefault({})
  .describe("The console: pages for operators and users, without script. Off unless it listens.");
