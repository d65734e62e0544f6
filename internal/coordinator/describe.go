package coordinator

// list is the group's row of ListGroups.
func (g *group) list() GroupListing {
	if g.consumers != nil {
		return GroupListing{Group: g.id, ProtocolType: g.protocolType, State: g.consumers.state(), Kind: kindConsumer}
	}
	return GroupListing{Group: g.id, ProtocolType: g.protocolType, State: g.state.String(), Kind: kindClassic}
}

// describe shows the group (GroupMetadataManager.describeGroups); nil is a group that does not exist. A consumer group is
// none to this request.
func (g *group) describe(id string) GroupDescription {
	if g == nil || g.consumers != nil {
		return GroupDescription{Err: ErrGroupNotFound, Group: id, State: "Dead"}
	}
	d := GroupDescription{
		Group: g.id, State: g.state.String(), ProtocolType: g.protocolType,
		Generation: g.generation, Leader: g.leader, Members: make([]MemberDescription, 0, len(g.members)),
	}
	if g.state == stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.byJoining() {
		row := MemberDescription{
			MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, ClientHost: m.clientHost,
			Assignment: m.assignment,
		}
		if g.state == stable {
			row.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, row)
	}
	return d
}

// describeConsumers shows a consumer group. A classic group is none to this request.
func (g *group) describeConsumers(id string) ConsumerGroupDescription {
	if id == "" {
		return ConsumerGroupDescription{Err: ErrInvalidGroupID} // which DescribeGroups may ask for
	}
	if g == nil || g.consumers == nil {
		return ConsumerGroupDescription{Err: ErrGroupNotFound, Group: id}
	}
	return g.consumers.describe()
}
