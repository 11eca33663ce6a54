-- Sends the same body with one token after the other. Arguments: file of tokens, file of the body (empty for
-- a GET), and names and values of further headers in turn.
local requests = {}
local at = 0

function init(args)
  local file = io.open(args[2], "rb")
  local body = file and file:read("*a")
  if file then file:close() end
  for token in io.lines(args[1]) do
    local headers = { ["content-type"] = "application/json", ["authorization"] = "Bearer " .. token }
    for name = 3, #args, 2 do headers[args[name]] = args[name + 1] end
    requests[#requests + 1] = wrk.format(body and "POST" or "GET", nil, headers, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"microseconds":%d,"refused":%d,"failed":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
