import t from "tap";
import { browserNamed } from "../../src/console/own-sessions.ts";

t.test("browsers are called by their names, whatever else they say that they are", (t) => {
  const webkit = "AppleWebKit/537.36 (KHTML, like Gecko)";
  const known = {
    "Firefox 145 on Linux":
      "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Chrome 142 on Windows": `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36`,
    "Edge 142 on Windows": `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0`,
    "Safari 18 on macOS":
      "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15",
    "Safari 18 on iOS":
      "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
    "Chrome 142 on Android": `Mozilla/5.0 (Linux; Android 16; Pixel 9) ${webkit} Chrome/142.0.0.0 Mobile Safari/537.36`,
    "curl/8.15.0": "curl/8.15.0",
    "a browser that does not say what it is": "",
  };
  for (const [name, userAgent] of Object.entries(known)) t.equal(browserNamed(userAgent), name);
  t.end();
});
