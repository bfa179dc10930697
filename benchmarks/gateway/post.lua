-- The load of wrk: one POST with a JSON body; at the end the figures in one line.
wrk.method = "POST"
wrk.body = '{"index": 7}'
wrk.headers["Content-Type"] = "application/json"

function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    "FIGURES %d %d %d %.0f %.0f\n",
    summary.requests, summary.duration, failed, latency:percentile(50), latency:percentile(99)))
end
