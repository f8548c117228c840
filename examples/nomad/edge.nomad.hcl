# A chain of two tasks between the uplinks 'lan' and 'wan' of the host: nomad job run edge.nomad.hcl
job "edge" {
  group "chain" {
    task "fw" {
      driver = "nfluid"
      config {
        nf     = "firewall"
        config = { rules_file = "local/rules" }
        links  = [["lan", ".in"], [".out", "@nat.in"]]
      }
      template {
        destination   = "local/rules"
        data          = "allow tcp from any to any 443\nallow icmp from any to any\n"
        change_mode   = "signal"
        change_signal = "SIGHUP"
      }
      resources {
        cpu    = 200
        memory = 32
      }
    }
    task "nat" {
      driver = "nfluid"
      config {
        nf     = "nat"
        config = { pool = ["192.0.2.1"] }
        links  = [[".out", "wan"]]
      }
      resources {
        cpu    = 200
        memory = 32
      }
    }
  }
}
